// A file in assembly lets the package declare functions whose bodies are in the runtime.
