"""python3-sysv-ipc: as perl_core.pl."""

import sys

from sysv_ipc import IPC_CREAT, MessageQueue, Semaphore, SharedMemory

queue = MessageQueue(99, IPC_CREAT)
semaphore = Semaphore(99, IPC_CREAT)
memory = SharedMemory(99, IPC_CREAT, size=8192)
for number in range(20):
    word = b"round %d!" % number
    if sys.argv[1] == "server":
        text, _ = queue.receive()
        memory.write(text, offset=5000)
        semaphore.release()
    else:
        queue.send(word)
        semaphore.acquire()
        assert memory.read(len(word), offset=5000) == word
print("done")
