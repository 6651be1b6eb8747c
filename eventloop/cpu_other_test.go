//go:build !linux

package eventloop

func processCPU() int64 { return 0 }
