//go:build race

package soak

// raceDetector: the tests run under it, so Fencepost does, too.
const raceDetector = true
