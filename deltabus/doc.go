// Package deltabus is the client of a DeltaBus: an event bus whose broker is three Delta tables (messages,
// checkpoints, dead_letters) in one schema. Producers publish through a Publisher, handlers consume through a
// Consumer from a stored position, and what fails too often goes to the dead letters, to be replayed.
package deltabus
