import inspect, msgspec, typing
class Derived:
    wraps_result=False
def _params(fn):
    hints=typing.get_type_hints(fn, include_extras=True)
    return {n:(hints.get(n,typing.Any),p.default) for n,p in inspect.signature(fn).parameters.items() if n!="context"}, "context" in inspect.signature(fn).parameters, hints.get("return")
def derive_tool(fn, *, name=None, title=None, description=None, annotations=None, icons=None, meta=None, output_schema=None):
    params, ctx, ret = _params(fn)
    (schemas, comps) = msgspec.json.schema_components([t for t,_ in params.values()], ref_template="#/$defs/{name}")
    props={n:({**s,"default":d} if d is not inspect.Parameter.empty else s) for (n,(t,d)),s in zip(params.items(),schemas)}
    schema={"type":"object","properties":props,"required":[n for n,(t,d) in params.items() if d is inspect.Parameter.empty]}
    if comps: schema["$defs"]=comps
    d=Derived(); d.definition={"name":name or fn.__name__,"description":description or inspect.getdoc(fn) or "","inputSchema":schema}
    if ret in (int,float,bool): d.wraps_result=True; d.definition["outputSchema"]={"type":"object","properties":{"result":msgspec.json.schema(ret)},"required":["result"]}
    def bind(arguments, context):
        kw={n:(msgspec.convert(arguments[n],t)) for n,(t,_) in params.items() if n in arguments}
        if ctx: kw["context"]=context
        return [], kw
    d.bind=bind
    return d
def derive_prompt(fn, *, name=None, title=None, description=None, **k):
    params, ctx, ret = _params(fn)
    d=Derived(); d.definition={"name":name or fn.__name__,"description":description or inspect.getdoc(fn) or "","arguments":[{"name":n,"required":df is inspect.Parameter.empty} for n,(t,df) in params.items()]}
    d.bind=lambda a,c:([],{**{n:a[n] for n in params if n in a},**({"context":c} if ctx else {})})
    return d
def derive_template(fn, uri_template):
    params, ctx, ret = _params(fn)
    key="uriTemplate" if "{" in uri_template else "uri"
    d=Derived(); d.definition={key:uri_template,"name":fn.__name__,"description":inspect.getdoc(fn) or ""}
    d.bind=lambda a,c:([],{**{n:a[n] for n in params if n in a},**({"context":c} if ctx else {})})
    return d
