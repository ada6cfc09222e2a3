"""A simulated inference server: two processes that behave, and publish metrics, as vLLM 0.32 v1 does.

No model runs. Queue, slots, chunked prefill, decode, aborts, preemption, load time and the moment at which
each series moves follow vLLM; tests/demo compares them with recordings of the real server.
"""
