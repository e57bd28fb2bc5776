"""The kernel of large margins against NumPy."""

import numpy as np

from arbora.kernels.discriminative import margin_losses


def margin_losses_twin(Z, A, share, targets, impostors, width, push):
    """Losses of all triplets, and the sum over pairs of weights times outer products of differences."""
    D = np.einsum("ijp,pq,ijq->ij", Z[:, None] - Z, A, Z[:, None] - Z)
    smooth = exact = total = 0.0
    G = np.zeros_like(A)
    for i in range(len(Z)):
        for j in targets[i]:
            for other in impostors[i]:
                slack = max(0.0, 1 + D[i, j] - D[i, other])
                multiplier = min(slack / width, 1.0)
                exact += share[i] * slack
                smooth += share[i] * (slack**2 / (2 * width) if slack <= width else slack - width / 2)
                total += share[i] * multiplier
                near, far = Z[i] - Z[j], Z[i] - Z[other]
                G += push * share[i] * multiplier * (np.outer(near, near) - np.outer(far, far))
    return smooth, exact, total, G


def test_margin_losses_by_their_definition():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(12, 3))
    B = rng.normal(size=(3, 3))
    A, share = (B + B.T) / 2, rng.random(12)  # an indefinite metric, as momentum steps have
    targets = [rng.choice(12, rng.integers(0, 3), replace=False) for _ in range(12)]
    impostors = [rng.choice(12, rng.integers(0, 6), replace=False) for _ in range(12)]
    pointers = [np.concatenate([[0], np.cumsum([len(one) for one in part])]) for part in (targets, impostors)]
    rows = [np.concatenate(part).astype(np.int32) for part in (targets, impostors)]
    sums, degree, Y = np.zeros_like(Z), np.zeros(12), Z @ A
    q = np.sum(Y * Z, axis=1)
    found = margin_losses(Z, Y, q, share, pointers[0], rows[0], pointers[1], rows[1], 0.3, 0.7, sums, degree)
    *known, G = margin_losses_twin(Z, A, share, targets, impostors, 0.3, 0.7)
    np.testing.assert_allclose(found, known)
    np.testing.assert_allclose(Z.T @ (degree[:, None] * Z) - Z.T @ sums - sums.T @ Z, G, atol=1e-12)
    without = margin_losses(
        Z, Y, q, share, pointers[0], rows[0], pointers[1], rows[1], 0.3, 0.7, np.zeros((0, 3)), degree.copy()
    )
    np.testing.assert_allclose(without, known)
