"""Components in registries: references, manifests, signatures."""
