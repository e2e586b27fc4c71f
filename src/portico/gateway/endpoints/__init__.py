"""The endpoints of a gateway: their catalogs, the router, the meta-tools."""
