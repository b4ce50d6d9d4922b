"""Each request of the interface as a value: what is sent, how its answer is read, when it may be
sent again. Pure; what sends them is `mq.client.sending`.
"""
