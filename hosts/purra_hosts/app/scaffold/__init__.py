"""New plugins, and manifests kept up with their code: what the commands for authors rest on."""
