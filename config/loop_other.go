//go:build !linux

package config

const hasEpoll = false
