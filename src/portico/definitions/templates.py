import re
from urllib.parse import unquote
class UriTemplate:
    def __init__(self, text):
        self.variables = re.findall(r"\{(\w+)\}", text)
        self._re = re.compile(re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^/]+)", re.escape(text)))
    def match(self, uri):
        m = self._re.fullmatch(uri)
        return m and {k: unquote(v) for k,v in m.groupdict().items()}
