"""``python -m pagemesh.bench``: what shared arrays cost, beside what people use instead.

Two nodes of a sandbox on this machine, each in a network namespace of its own; everything that is
compared runs in the same two namespaces, in the same run. What is not installed is left out.
"""
