"""The parts of servers: the chain, functions, tasks, components, bundles."""
