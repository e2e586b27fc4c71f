"""Other agents: their turns, the choice between them, delegation, worktrees."""
