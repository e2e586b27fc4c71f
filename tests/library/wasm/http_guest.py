"""A component of wasi:http, written by hand: it sends one request."""

_ERRORS = """
  DNS-timeout DNS-error:$dns-error destination-not-found destination-unavailable
  destination-IP-prohibited destination-IP-unroutable connection-refused connection-terminated
  connection-timeout connection-read-timeout connection-write-timeout connection-limit-reached
  TLS-protocol-error TLS-certificate-error TLS-alert-received:$tls-alert
  HTTP-request-denied HTTP-request-length-required HTTP-request-body-size:$size64
  HTTP-request-method-invalid HTTP-request-URI-invalid HTTP-request-URI-too-long
  HTTP-request-header-section-size:$size32 HTTP-request-header-size:$some-field
  HTTP-request-trailer-section-size:$size32 HTTP-request-trailer-size:$field
  HTTP-response-incomplete HTTP-response-header-section-size:$size32
  HTTP-response-header-size:$field HTTP-response-body-size:$size64
  HTTP-response-trailer-section-size:$size32 HTTP-response-trailer-size:$field
  HTTP-response-transfer-coding:$text HTTP-response-content-coding:$text HTTP-response-timeout
  HTTP-upgrade-failed HTTP-protocol-error loop-detected configuration-error internal-error:$text"""
"""The cases of `error-code`, each with the type of its value."""


def _cases() -> str:
    parts = (one.partition(":") for one in _ERRORS.split())
    return " ".join(f'(case "{name}" {kind})' for name, _, kind in parts)


def sending(authority: str) -> str:
    """Return a component whose `send` requests `http://AUTHORITY/` and awaits the response."""
    return f"""
(component
  (import "wasi:io/poll@0.2.0" (instance $poll
    (export "pollable" (type $pollable (sub resource)))
    (export "[method]pollable.block" (func (param "self" (borrow $pollable))))))
  (alias export $poll "pollable" (type $pollable))
  (import "wasi:http/types@0.2.0" (instance $types
    (alias outer 1 $pollable (type $outer))
    (export "pollable" (type $pollable (eq $outer)))
    (export "fields" (type $fields (sub resource)))
    (export "outgoing-request" (type $request (sub resource)))
    (export "request-options" (type $options (sub resource)))
    (export "future-incoming-response" (type $future (sub resource)))
    (type $text (option string))
    (type $size32 (option u32))
    (type $size64 (option u64))
    (type $dns (record (field "rcode" $text) (field "info-code" (option u16))))
    (export "DNS-error-payload" (type $dns-error (eq $dns)))
    (type $tls (record (field "alert-id" (option u8)) (field "alert-message" $text)))
    (export "TLS-alert-received-payload" (type $tls-alert (eq $tls)))
    (type $field-size (record (field "field-name" $text) (field "field-size" $size32)))
    (export "field-size-payload" (type $field (eq $field-size)))
    (type $some-field (option $field))
    (type $error (variant {_cases()}))
    (export "error-code" (type $error-code (eq $error)))
    (type $schemes (variant (case "HTTP") (case "HTTPS") (case "other" string)))
    (export "scheme" (type $scheme (eq $schemes)))
    (export "[constructor]fields" (func (result (own $fields))))
    (export "[constructor]outgoing-request"
      (func (param "headers" (own $fields)) (result (own $request))))
    (export "[method]outgoing-request.set-scheme" (func
      (param "self" (borrow $request)) (param "scheme" (option $scheme)) (result (result))))
    (export "[method]outgoing-request.set-authority" (func
      (param "self" (borrow $request)) (param "authority" $text) (result (result))))
    (export "[method]outgoing-request.set-path-with-query" (func
      (param "self" (borrow $request)) (param "path-with-query" $text) (result (result))))
    (export "[method]future-incoming-response.subscribe" (func
      (param "self" (borrow $future)) (result (own $pollable))))))
  (alias export $types "outgoing-request" (type $request))
  (alias export $types "request-options" (type $options))
  (alias export $types "future-incoming-response" (type $future))
  (alias export $types "error-code" (type $error-code))
  (import "wasi:http/outgoing-handler@0.2.0" (instance $handler
    (alias outer 1 $request (type $outer-request))
    (export "outgoing-request" (type $request (eq $outer-request)))
    (alias outer 1 $options (type $outer-options))
    (export "request-options" (type $options (eq $outer-options)))
    (alias outer 1 $future (type $outer-future))
    (export "future-incoming-response" (type $future (eq $outer-future)))
    (alias outer 1 $error-code (type $outer-error))
    (export "error-code" (type $error-code (eq $outer-error)))
    (export "handle" (func
      (param "request" (own $request)) (param "options" (option (own $options)))
      (result (result (own $future) (error $error-code)))))))
  (core module $memory (memory (export "memory") 1)
    (data (i32.const 508) "/")
    (data (i32.const 512) "{authority}")
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024)))
  (core instance $memory (instantiate $memory))
  (alias core export $memory "memory" (core memory $bytes))
  (alias core export $memory "realloc" (core func $realloc))
  (core func $fields (canon lower (func $types "[constructor]fields")))
  (core func $new (canon lower (func $types "[constructor]outgoing-request")))
  (core func $scheme (canon lower (func $types "[method]outgoing-request.set-scheme")
    (memory $bytes) (realloc $realloc)))
  (core func $authority (canon lower (func $types "[method]outgoing-request.set-authority")
    (memory $bytes) (realloc $realloc)))
  (core func $path (canon lower (func $types "[method]outgoing-request.set-path-with-query")
    (memory $bytes) (realloc $realloc)))
  (core func $handle (canon lower (func $handler "handle") (memory $bytes) (realloc $realloc)))
  (core func $subscribe
    (canon lower (func $types "[method]future-incoming-response.subscribe")))
  (core func $block (canon lower (func $poll "[method]pollable.block")))
  (core module $main
    (import "host" "fields" (func $fields (result i32)))
    (import "host" "new" (func $new (param i32) (result i32)))
    (import "host" "scheme" (func $scheme (param i32 i32 i32 i32 i32) (result i32)))
    (import "host" "authority" (func $authority (param i32 i32 i32 i32) (result i32)))
    (import "host" "path" (func $path (param i32 i32 i32 i32) (result i32)))
    (import "host" "handle" (func $handle (param i32 i32 i32 i32)))
    (import "host" "subscribe" (func $subscribe (param i32) (result i32)))
    (import "host" "block" (func $block (param i32)))
    (import "host" "memory" (memory 1))
    (func (export "send") (result i32) (local $request i32)
      (local.set $request (call $new (call $fields)))
      (drop (call $scheme (local.get $request)
        (i32.const 1) (i32.const 0) (i32.const 0) (i32.const 0)))
      (drop (call $authority (local.get $request)
        (i32.const 1) (i32.const 512) (i32.const {len(authority)})))
      (drop (call $path (local.get $request) (i32.const 1) (i32.const 508) (i32.const 1)))
      (call $handle (local.get $request) (i32.const 0) (i32.const 0) (i32.const 16))
      (if (i32.load8_u (i32.const 16)) (then unreachable))
      (call $block (call $subscribe (i32.load (i32.const 24))))
      (i32.const 1)))
  (core instance $i (instantiate $main (with "host" (instance
    (export "fields" (func $fields)) (export "new" (func $new))
    (export "scheme" (func $scheme)) (export "authority" (func $authority))
    (export "path" (func $path))
    (export "handle" (func $handle)) (export "subscribe" (func $subscribe))
    (export "block" (func $block)) (export "memory" (memory $bytes))))))
  (func (export "send") (result u32) (canon lift (core func $i "send"))))
"""
