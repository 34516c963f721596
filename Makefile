# Everything a developer runs, by name. Tools go to .bin, peers to .interop; nothing else is left behind.
GOLANGCI_VERSION := v2.15.0
BIN := $(CURDIR)/.bin
# Packages small enough for -race in CI: those that do not link SQLite, S3 or containers (make race has all).
RACE_PACKAGES := ./deltalog/... ./cdf/... ./zerobusfake/... ./internal/zerobus/... ./internal/databricks/...
# Tables of other engines that make interop reads.
GOLDEN := $(or $(DELTABUS_GOLDEN),$(CURDIR)/../shared/golden)
PLATFORMS := linux darwin windows

.PHONY: help
help: ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 16

.PHONY: build
build: ## the binary, static, into .bin
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o $(BIN)/deltabus-local ./cmd/deltabus-local

.PHONY: test
test: ## what the README says
	go test ./...

.PHONY: race-small
race-small: ## -race over the packages with few dependencies
	go test -race -short -timeout 15m $(RACE_PACKAGES)

.PHONY: race
race: ## -race over everything
	go test -race -timeout 40m ./...

.PHONY: lint
lint: $(BIN)/golangci-lint ## golangci-lint, with the layers of docs/design.md
	$(BIN)/golangci-lint run ./...

$(BIN)/golangci-lint:
	GOBIN=$(BIN) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)

.PHONY: platforms
platforms: ## build and vet for linux, darwin and windows
	@for os in $(PLATFORMS); do echo "$$os" && CGO_ENABLED=0 GOOS=$$os go build -o /dev/null ./cmd/deltabus-local && CGO_ENABLED=0 GOOS=$$os go vet ./... || exit 1; done

.PHONY: interop
interop: build ## install the peers (official SDKs, Spark, delta-rs) and run all that needs them
	interop/install.sh
	cd interop && go vet -tags rust ./... && DELTABUS_GOLDEN=$(GOLDEN) DELTABUS_LOCAL=$(BIN)/deltabus-local go test -count=1 -timeout 30m ./...

.PHONY: interop-rust
interop-rust: build ## the same for the official Rust SDK, which takes minutes to build
	interop/install.sh rust
	cd interop && DELTABUS_LOCAL=$(BIN)/deltabus-local go test -count=1 -timeout 15m -tags rust -run Rust ./...

.PHONY: soak
soak: ## random operations against a plain model, for ten minutes (DELTABUS_SOAK=1h for longer; DELTABUS_SEED=n repeats a failure)
	DELTABUS_SOAK=$(or $(DELTABUS_SOAK),10m) go test -count=1 -timeout 0 -run TestRandomOperations ./cdf

.PHONY: bench
bench: ## benchmarks, each beside a peer in the same run; on a quiet machine (peers: interop/install.sh)
	go test -run XXX -bench . ./deltalog ./cdf ./zerobusfake ./internal/zerobus ./deltabus ./emulator
	cd interop && go test -run XXX -bench . -benchtime 1x .

.PHONY: bench-rust
bench-rust: ## the official Rust SDK beside a server that does nothing (its peer: interop/install.sh rust)
	cd interop && go test -run XXX -bench Rust -benchtime 1x -tags rust .

.PHONY: generate
generate: ## the Zerobus wire types, from their proto (needs protoc, protoc-gen-go, protoc-gen-go-grpc)
	cd internal/zerobus/zerobuspb && protoc -I . -I /usr/include --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative zerobus.proto
