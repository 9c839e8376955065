"""The conversion job: micro-batches of raw payloads in, outcomes (valid or rejected) out.

`plan` says what to do and is pure data; `job` turns a plan into Spark columns; `exact` passes the verdict on the few
payloads that the columns cannot vouch for; `runner` is the asynchronous face. Nothing of the other rooms is imported.
"""
