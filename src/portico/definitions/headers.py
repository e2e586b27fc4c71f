from portico.model.offer import HeaderParam
def header_params(schema):
    return tuple(HeaderParam("mcp-param-"+v["x-mcp-header"].lower(), (k,), v["type"]) for k,v in schema.get("properties",{}).items() if isinstance(v,dict) and "x-mcp-header" in v)
