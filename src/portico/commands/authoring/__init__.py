"""Making components and publishing them: new projects, bundles, aliases, registries."""
