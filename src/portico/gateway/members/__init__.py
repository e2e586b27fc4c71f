"""The members of a gateway: servers of the config, in processes and in this one."""
