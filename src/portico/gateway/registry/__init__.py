"""All members: started, merged, reloaded with the config, searched."""
