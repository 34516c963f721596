// Package conformance is what a DeltaBus promises, as scenarios that run against a target: the emulator in process, or
// a served binary whose server, producers and consumers are killed for real. A scenario records a history of what
// happened (History), and checkers over that history decide, not the scenario's own eye. Each checker has a planted-fault test
// (TestPlanted…) that proves that it catches what it claims.
package conformance
