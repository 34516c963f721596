#!/usr/bin/env bash
# Installs the peers that judge us into .interop/, each pinned, through the package registries' ordinary clients. What is there
# already is not installed again.
set -euo pipefail
cd "$(dirname "$0")/.."
to=$PWD/.interop
mkdir -p "$to"

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
install_npm() { npm install --silent --no-audit --no-fund --prefix "$to/npm" @databricks/zerobus-ingest-sdk-linux-x64-gnu@1.3.0 protobufjs@7.5.4; }
install_maven() { mvn -q -B -f "interop/$1/pom.xml" dependency:copy-dependencies -DoutputDirectory="$to/$2" "${@:3}"; }

once python "${python_packages[*]}" install_python &
pids=($!)
once npm "1.3.0 7.5.4" install_npm &
pids+=($!)
{
  once java-jars "$(cksum <interop/java/pom.xml)" install_maven java java-jars
  once spark-jars "$(cksum <interop/spark/pom.xml)" install_maven spark spark-jars -DincludeGroupIds=io.delta,io.unitycatalog
} &
pids+=($!)
for pid in "${pids[@]}"; do wait "$pid"; done
echo "interop: peers are installed in .interop"
