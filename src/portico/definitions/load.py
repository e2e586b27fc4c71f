import json, pathlib
def _l(source, key):
    if isinstance(source,(str,pathlib.Path)): source=json.loads(pathlib.Path(source).read_text())
    if isinstance(source,bytes): source=json.loads(source)
    return list(source[key]) if isinstance(source,dict) else [dict(x) for x in source]
def load_tools(s): return _l(s,"tools")
def load_resources(s): return _l(s,"resources")
def load_templates(s): return _l(s,"resourceTemplates")
def load_prompts(s): return _l(s,"prompts")
class Definitions: ...
def load_file(p):
    d=json.loads(pathlib.Path(p).read_text()); o=Definitions()
    o.tools=d.get("tools",[]) if isinstance(d,dict) else d; o.resources=d.get("resources",[]) if isinstance(d,dict) else []; o.templates=[];o.prompts=[]
    return o
