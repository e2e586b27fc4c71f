"""Delegation: prompts to other agents as durable tasks, and the tools that start them."""
