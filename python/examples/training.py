"""A small training loop: the parameters lie in one array, and each worker adds its gradients.

    pagemesh sandbox 3 -- python training.py

Fits a line through noise by stochastic gradients. Each worker has data of its own; what it learns
goes into the shared parameters under a lock, once a batch.
"""

import numpy

import pagemesh

TRUE = numpy.array([2.0, -3.0, 0.5, 7.0])
EPOCHS, BATCHES, BATCH, RATE = 5, 20, 64, 0.05


def data(dice):
    """A batch that only this worker has."""
    inputs = dice.normal(size=(BATCH, len(TRUE)))
    return inputs, inputs @ TRUE + dice.normal(scale=0.1, size=BATCH)


def main():
    rank, size = pagemesh.rank(), pagemesh.size()
    parameters = pagemesh.array("parameters", len(TRUE))
    losses = pagemesh.array("losses", (EPOCHS, size))
    lock = pagemesh.Lock("parameters")
    dice = numpy.random.default_rng(rank)
    pagemesh.barrier()
    for epoch in range(EPOCHS):
        for _ in range(BATCHES):
            inputs, wanted = data(dice)
            here = numpy.array(parameters)  # what all have learnt so far
            error = inputs @ here - wanted
            gradient = inputs.T @ error / BATCH
            with lock:
                parameters -= RATE * gradient
        losses[epoch, rank] = (error**2).mean()
        pagemesh.barrier()
        if rank == 0:
            print(f"epoch {epoch + 1}: loss {losses[epoch].mean():.4f}")
    if rank == 0:
        print(f"{size} workers found {parameters.round(2)}, true is {TRUE}")
        assert numpy.allclose(parameters, TRUE, atol=0.1)
        for used in (parameters, losses, lock):
            used.unlink()


main()
