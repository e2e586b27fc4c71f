"""Which agent gets a task: rules, quotas, availability."""
