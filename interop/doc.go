// Package interop holds the tests that need peers: official SDKs, delta-rs, Spark, a workspace client. They drive the real
// binary and judge it by software that this project did not write. install.sh installs the peers into .interop; a missing peer
// is a failure. docs/interop.md says what each test proves.
package interop
