"""The base of every group: types, the protocol, definitions, files, config, catalogs, HTTP/1.1."""
