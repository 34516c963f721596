#!/usr/bin/env bash
# Installs the peers that judge us into .interop/, each pinned, through the package registries' ordinary clients. What is there
# already is not installed again. With the argument rust it builds the Rust SDK's peer too, which takes minutes of CPU.
set -euo pipefail
cd "$(dirname "$0")/.."
to=$PWD/.interop
mkdir -p "$to"
case "${1:-}" in "" | rust) ;; *) echo "interop: unknown peer $1: there is rust, or no argument" >&2; exit 2 ;; esac

# once NAME KEY COMMAND…: runs COMMAND unless it has succeeded with this KEY before.
once() {
  local name=$1 key=$2
  shift 2
  if [ "$(cat "$to/$name.done" 2>/dev/null)" = "$key" ]; then return; fi
  echo "interop: installing $name"
  "$@" >"$to/$name.log" 2>&1 || { echo "interop: $name failed:"; tail -30 "$to/$name.log"; return 1; }
  echo "$key" >"$to/$name.done"
}

python_packages=(
  databricks-zerobus-ingest-sdk==1.10.0 deltalake==1.6.6 pyspark==4.2.0 delta-spark==4.4.0
  pandas==2.3.3 pyarrow==26.0.1 grpcio-tools==1.81.1 databricks-sdk==0.162.0
)
install_python() {
  python3 -m venv "$to/venv"
  "$to/venv/bin/pip" install --quiet "${python_packages[@]}"
}
# An S3 server, built by Go.
install_versitygw() { GOBIN=$to/bin go install "github.com/versity/versitygw/cmd/versitygw@$1"; }
install_npm() { npm install --silent --no-audit --no-fund --prefix "$to/npm" @databricks/zerobus-ingest-sdk-linux-x64-gnu@1.3.0 protobufjs@7.5.4; }
install_maven() { mvn -q -B -f "interop/$1/pom.xml" dependency:copy-dependencies -DoutputDirectory="$to/$2" "${@:3}"; }

# The Rust SDK 3.0.0 wants webpki-roots ^1.0.11, which not every mirror of crates.io has: 1.0.10 is fetched by cargo and relabelled, and
# interop/rust/Cargo.toml patches it in. The two differ in the certificates that they list, which no connection to loopback asks for.
install_rust() {
  local dir=$to/rust
  mkdir -p "$dir/fetch/src"
  touch "$dir/fetch/src/lib.rs"
  printf '[package]\nname = "fetch"\nedition = "2021"\n[dependencies]\nwebpki-roots = "=1.0.10"\n[workspace]\n' >"$dir/fetch/Cargo.toml"
  (cd "$dir/fetch" && cargo vendor vendor)
  rm -rf "$dir/webpki-roots"
  mv "$dir/fetch/vendor/webpki-roots" "$dir/webpki-roots"
  rm -rf "$dir/fetch"
  sed -i.bak 's/^version = "1.0.10"$/version = "1.0.11"/' "$dir/webpki-roots/Cargo.toml"
  CARGO_TARGET_DIR=$dir/target cargo build --release --locked --manifest-path interop/rust/Cargo.toml
}

once python "${python_packages[*]}" install_python &
pids=($!)
once npm "1.3.0 7.5.4" install_npm &
pids+=($!)
once versitygw v1.8.0 install_versitygw v1.8.0 &
pids+=($!)
{
  once java-jars "$(cksum <interop/java/pom.xml)" install_maven java java-jars
  once spark-jars "$(cksum <interop/spark/pom.xml)" install_maven spark spark-jars -DincludeGroupIds=io.delta,io.unitycatalog
} &
pids+=($!)
for pid in "${pids[@]}"; do wait "$pid"; done
if [ "${1:-}" = rust ]; then once rust "$(cat interop/rust/Cargo.* interop/rust/src/* | cksum)" install_rust; fi
echo "interop: peers are installed in .interop"
