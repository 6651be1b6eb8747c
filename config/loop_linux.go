package config

const hasEpoll = true
