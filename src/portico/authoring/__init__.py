"""Making components: new projects, bundles, aliases and profiles."""
