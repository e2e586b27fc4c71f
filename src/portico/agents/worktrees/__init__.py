"""Git worktrees for tasks, and their changes merged without trusting an agent."""
