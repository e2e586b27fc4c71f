from typing import Any
class Problem:
    def __init__(self, path, message): self.path, self.message = path, message
class Schema:
    def __init__(self, source, *, where=""): self.source, self._v = source, None
    def problems(self, instance: Any):
        if self._v is None:
            import jsonschema_rs
            self._v = jsonschema_rs.validator_for(self.source)
        return [Problem(".".join(map(str,e.instance_path)), e.message) for e in self._v.iter_errors(instance)]
    def describe(self, problems): return "; ".join(f"{p.path}: {p.message}" for p in problems)
def describe(problems): return "; ".join(f"{p.path}: {p.message}" for p in problems)
