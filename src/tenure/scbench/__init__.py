"""The life-cycle benchmark: what dropping, quantising, selecting or sharing KV costs a model, over turns and across requests.
Nothing is imported here: tasks run without PyTorch, methods and models need it."""
