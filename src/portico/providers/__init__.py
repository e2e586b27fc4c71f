"""What answers: something that owns tools, resources, prompts or completions."""
