"""Slow, plain NumPy references of every method: loops over clients, written from the papers.

Nothing here knows the package. Every method takes ``clients``, their weights ``w`` (which enter
only the server's mean), the start ``x`` and a number of rounds, and returns the server's model
after every round. ``heard`` says who takes part, as booleans (rounds, clients). ``rows(r, i, k)``
names the minibatch of client i in step k of round r; without it gradients are full.
"""

import numpy as np

SIZES = {"least_squares": (4, 9, 6, 11, 5, 10), "logistic": (8, 10, 9, 10, 7, 9)}
"""Rows of the clients that the tests share: far apart, and close to each other."""
FEATURES, L2 = 5, 0.05


class LeastSquares:
    """f(x) = (1/(2n)) ||A x - y||^2 + (l2/2) ||x||^2."""

    def __init__(self, A, y, l2=0.0):
        self.A, self.y, self.l2 = A, y, l2

    def value(self, x):
        residual = self.A @ x - self.y
        return residual @ residual / (2 * len(self.y)) + 0.5 * self.l2 * x @ x

    def grad(self, x, rows=None):
        A, y = (self.A, self.y) if rows is None else (self.A[rows], self.y[rows])
        return A.T @ (A @ x - y) / len(y) + self.l2 * x

    def hessian(self, x):
        return self.A.T @ self.A / len(self.y) + self.l2 * np.eye(len(x))

    def smoothness(self):
        return np.linalg.norm(self.A, 2) ** 2 / len(self.y) + self.l2

    def argmin(self, dual, centre, penalty):
        """The minimiser of f(x) + <dual, x - centre> + (penalty/2) ||x - centre||^2."""
        pull = self.A.T @ self.y / len(self.y) - dual + penalty * centre
        return np.linalg.solve(self.hessian(centre) + penalty * np.eye(len(centre)), pull)


class Logistic:
    """f(x) = (1/n) sum_r [log(1 + exp(a_r x)) - y_r a_r x] + (l2/2) ||x||^2, labels 0 and 1."""

    def __init__(self, A, y, l2=0.0):
        self.A, self.y, self.l2 = A, y, l2

    def value(self, x):
        eta = self.A @ x
        return np.mean(np.logaddexp(0, eta) - self.y * eta) + 0.5 * self.l2 * x @ x

    def grad(self, x, rows=None):
        A, y = (self.A, self.y) if rows is None else (self.A[rows], self.y[rows])
        return A.T @ (1 / (1 + np.exp(-A @ x)) - y) / len(y) + self.l2 * x

    def hessian(self, x):
        p = 1 / (1 + np.exp(-self.A @ x))
        return (self.A.T * (p * (1 - p))) @ self.A / len(self.y) + self.l2 * np.eye(len(x))

    def smoothness(self):
        return 0.25 * np.linalg.norm(self.A, 2) ** 2 / len(self.y) + self.l2

    def argmin(self, dual, centre, penalty):
        """The minimiser of f(x) + <dual, x - centre> + (penalty/2) ||x - centre||^2, by Newton."""
        identity = np.eye(len(centre))
        return newton(
            lambda x: self.value(x) + (dual + 0.5 * penalty * (x - centre)) @ (x - centre),
            lambda x: self.grad(x) + dual + penalty * (x - centre),
            lambda x: self.hessian(x) + penalty * identity,
            centre,
        )


class Poisson(Logistic):
    """f(x) = (1/n) sum_r [exp(a_r x) - y_r a_r x] + (l2/2) ||x||^2, counts y_r >= 0."""

    def value(self, x):
        eta = self.A @ x
        return np.mean(np.exp(eta) - self.y * eta) + 0.5 * self.l2 * x @ x

    def grad(self, x, rows=None):
        return self.A.T @ (np.exp(self.A @ x) - self.y) / len(self.y) + self.l2 * x

    def hessian(self, x):
        bent = self.A.T * np.exp(self.A @ x)
        return bent @ self.A / len(self.y) + self.l2 * np.eye(len(x))


def heterogeneous(kind, seed=11):
    """Clients that differ in size, in their columns' scales and in their own optima."""
    rng = np.random.default_rng(seed)
    clients = []
    for n in SIZES[kind]:
        A = rng.normal(size=(n, FEATURES)) * rng.uniform(0.3, 1.5, FEATURES)
        eta = A @ (2 * rng.normal(size=FEATURES))
        if kind == "least_squares":
            clients.append(LeastSquares(A, eta + 0.3 * rng.normal(size=n), L2))
        else:
            labels = rng.uniform(size=n) < 1 / (1 + np.exp(-eta))
            clients.append(Logistic(A, labels.astype(float), L2))
    return clients


def newton(value, gradient, hessian, x):
    """The minimiser of a convex function by Newton's method, halving steps that do not descend."""
    for _ in range(100):
        slope = gradient(x)
        step = np.linalg.solve(hessian(x), slope)
        if np.linalg.norm(step) <= 1e-14 * (1 + np.linalg.norm(x)):
            return x - step
        # Close to the minimiser a value cannot tell a good step from rounding, and none is bad.
        length, decrease = 1.0, slope @ step
        while decrease > 1e-10 and value(x - length * step) > value(x) - 1e-4 * length * decrease:
            length = length / 2
        x = x - length * step
    raise AssertionError("Newton's method did not converge")


def solve(clients, w):
    """The minimiser of F = sum_i w_i f_i."""

    def total(name):
        return lambda x: sum(w_i * getattr(f, name)(x) for w_i, f in zip(w, clients, strict=True))

    start = np.zeros(clients[0].A.shape[1])
    return newton(total("value"), total("grad"), total("hessian"), start)


def mean(w, vectors):
    """sum_i w_i v_i."""
    total = np.zeros_like(vectors[0])
    for w_i, v in zip(w, vectors, strict=True):
        total = total + w_i * v
    return total


def mean_heard(w, vectors, active):
    """The mean over the clients heard, their weights scaled to sum to one."""
    share = sum(w[i] for i in active)
    total = np.zeros_like(vectors[active[0]])
    for i in active:
        total = total + w[i] / share * vectors[i]
    return total


def active_clients(heard, r, m):
    """Positions of the clients that take part in round r."""
    return list(range(m)) if heard is None else [i for i in range(m) if heard[r][i]]


def picked(rows, *place):
    """The rows of a minibatch, or None for all of them."""
    return None if rows is None else rows(*place)


def gradient_descent(clients, w, x, rounds, step_size, heard=None):
    """x <- x - eta sum_i w_i g_i, with an absent client's last gradient (zero before its first)."""
    latest, xs = [np.zeros_like(x) for _ in clients], []
    for r in range(rounds):
        for i in active_clients(heard, r, len(clients)):
            latest[i] = clients[i].grad(x)
        x = x - step_size * mean(w, latest)
        xs.append(x)
    return np.array(xs)


def newton_rounds(clients, w, x, rounds):
    """x <- x - H^-1 g; where F has not fallen by Armijo's rule the next round tries half the step."""
    base, step, length, lowest, slope, xs = x, 0 * x, 1.0, np.inf, 0.0, []
    for _ in range(rounds):
        value = mean(w, [f.value(x) for f in clients])
        noise = 64 * np.finfo(float).eps * abs(lowest)
        if value <= lowest + 1e-4 * length * slope + noise:
            gradient = mean(w, [f.grad(x) for f in clients])
            hessian = mean(w, [f.hessian(x) for f in clients])
            base, step, length, lowest = x, -np.linalg.solve(hessian, gradient), 1.0, value
            slope = gradient @ step
        else:
            length = length / 2
        x = base + length * step
        xs.append(x)
    return np.array(xs)


def fedavg(clients, w, x, rounds, step_size, local_steps, heard=None, rows=None):
    """FedAvg, Algorithm 1 of McMahan et al. (2017)."""
    return fedprox(clients, w, x, rounds, step_size, local_steps, 0.0, heard, rows)


def fedprox(clients, w, x, rounds, step_size, local_steps, penalty, heard=None, rows=None):
    """FedProx with local gradient steps: x_i <- x_i - eta (g + mu (x_i - x_s))."""
    xs = []
    for r in range(rounds):
        local = {}
        active = active_clients(heard, r, len(clients))
        for i in active:
            x_i = x.copy()
            for k in range(local_steps):
                g = clients[i].grad(x_i, picked(rows, r, i, k))
                x_i = x_i - step_size * (g + penalty * (x_i - x))
            local[i] = x_i
        x = mean_heard(w, local, active)
        xs.append(x)
    return np.array(xs)


def scaffold(
    clients, w, x, rounds, step_size, local_steps, server_step_size=1.0, heard=None, rows=None
):
    """SCAFFOLD, Algorithm 1 with option II of Karimireddy et al. (2020), with its increments."""
    c, controls, xs = np.zeros_like(x), [np.zeros_like(x) for _ in clients], []
    for r in range(rounds):
        moved, changed = {}, np.zeros_like(x)
        active = active_clients(heard, r, len(clients))
        for i in active:
            y = x.copy()
            for k in range(local_steps):
                y = y - step_size * (clients[i].grad(y, picked(rows, r, i, k)) - controls[i] + c)
            new = controls[i] - c + (x - y) / (local_steps * step_size)
            moved[i] = y - x
            # The paper's c <- c + (|S|/N) mean_S(c_i^+ - c_i) is (1/N) times the sum over S.
            changed = changed + w[i] * (new - controls[i])
            controls[i] = new
        x = x + server_step_size * mean_heard(w, moved, active)
        c = c + changed
        xs.append(x)
    return np.array(xs)


def admm(clients, w, x, rounds, penalty, heard=None):
    """Scheme (3) of Zhang et al. (2021), s = 1/rho; an absent client's last message counts."""
    s = 1 / penalty
    duals, sent, xs = [np.zeros_like(x) for _ in clients], [x for _ in clients], []
    for r in range(rounds):
        for i in active_clients(heard, r, len(clients)):
            x_i = clients[i].argmin(duals[i], x, penalty)
            duals[i] = duals[i] + (x_i - x) / s
            sent[i] = x_i + s * duals[i]
        x = mean(w, sent)
        xs.append(x)
    return np.array(xs)


class ExactOracle:
    """The minimiser of the sub-problem."""

    def __call__(self, f, i, start, dual, centre, penalty, rows):
        return f.argmin(dual, centre, penalty)


class GradientOracle:
    """K steps x <- x - eta (g + lambda + rho (x - x_0))."""

    def __init__(self, local_steps, step_size):
        self.local_steps, self.step_size = local_steps, step_size

    def __call__(self, f, i, start, dual, centre, penalty, rows):
        x = start
        for k in range(self.local_steps):
            g = f.grad(x, None if rows is None else rows(k))
            x = x - self.step_size * (g + dual + penalty * (x - centre))
        return x


class LinearisedOracle(GradientOracle):
    """K steps of the closed form, eq. (4) of Zhang et al. (2021), with gamma = eta."""

    def __call__(self, f, i, start, dual, centre, penalty, rows):
        x, eta = start, self.step_size
        for k in range(self.local_steps):
            g = f.grad(x, None if rows is None else rows(k))
            x = (x / eta + penalty * centre - dual - g) / (1 / eta + penalty)
        return x


class VarianceReducedOracle:
    """Oracle II of Zhang et al. (2021): every I-th call a full gradient, else the one carried."""

    def __init__(self, local_steps, step_size, interval):
        self.local_steps, self.step_size, self.interval = local_steps, step_size, interval
        self.carried, self.calls = {}, {}

    def __call__(self, f, i, start, dual, centre, penalty, rows):
        x, eta = start, self.step_size
        calls = self.calls.get(i, 0)
        g = f.grad(x) if calls % self.interval == 0 else self.carried[i]
        for k in range(self.local_steps):
            old = x
            x = (old / eta + penalty * centre - dual - g) / (1 / eta + penalty)
            batch = rows(k)
            for row in batch:
                g = g + (f.grad(x, [row]) - f.grad(old, [row])) / len(batch)
        self.carried[i], self.calls[i] = g, calls + 1
        return x


def fedpd(clients, w, x, iterations, penalty, oracle, heard=None, rows=None):
    """FedPD, Algorithm 1 of Zhang et al. (2021), with the coins given.

    ``iterations`` holds T for every communication: T - 1 iterations that skip, and one that does
    not. ``rows(r, i, t, k)`` names the minibatch of step k of iteration t.
    """
    m, s, xs = len(clients), 1 / penalty, []
    local, duals = [x for _ in range(m)], [np.zeros_like(x) for _ in range(m)]
    sent = [x for _ in range(m)]
    for r, T in enumerate(iterations):
        active = active_clients(heard, r, m)
        own = dict.fromkeys(active, x)
        for t in range(T):
            for i in active:
                batch = None if rows is None else lambda k, r=r, i=i, t=t: rows(r, i, t, k)
                local[i] = oracle(clients[i], i, local[i], duals[i], own[i], penalty, batch)
                duals[i] = duals[i] + (local[i] - own[i]) / s
                own[i] = local[i] + s * duals[i]
        for i in active:
            sent[i] = own[i]
        x = mean(w, sent)
        xs.append(x)
    return np.array(xs)


def pdmm(clients, w, x, rounds, penalty, relaxation=1.0, heard=None):
    """Centralised PDMM, eqs. (10)-(13) of Zhang et al. (2022), with both duals of every edge."""
    m, xs = len(clients), []
    at_server = [np.zeros_like(x) for _ in range(m)]
    sent = [x for _ in range(m)]
    for r in range(rounds):
        for i in active_clients(heard, r, m):
            x_i = clients[i].argmin(at_server[i], x, penalty)
            at_client = penalty * (x - x_i) - at_server[i]
            sent[i] = (1 - relaxation) * sent[i] + relaxation * (x_i - at_client / penalty)
        x = mean(w, sent)
        at_server = [penalty * (y - x) for y in sent]
        xs.append(x)
    return np.array(xs)


def fedsplit(clients, w, x, rounds, penalty, heard=None):
    """FedSplit, Algorithm 1 of Pathak and Wainwright (2020), with proximal steps of size 1/rho."""
    z, xs, zero = [x for _ in clients], [], np.zeros_like(x)
    for r in range(rounds):
        for i in active_clients(heard, r, len(clients)):
            half = clients[i].argmin(zero, 2 * x - z[i], penalty)
            z[i] = z[i] + 2 * (half - x)
        x = mean(w, z)
        xs.append(x)
    return np.array(xs)


def feddr(clients, w, x, rounds, penalty, alpha):
    """FedDR of Tran-Dinh et al. (2021), all clients, no regulariser at the server.

    y_i <- y_i + alpha (xbar - x_i);  x_i = prox(y_i);  xbar = mean of 2 x_i - y_i.
    """
    m, xs, zero = len(clients), [], np.zeros_like(x)
    y, local = [x for _ in range(m)], [x for _ in range(m)]
    for _ in range(rounds):
        for i in range(m):
            y[i] = y[i] + alpha * (x - local[i])
            local[i] = clients[i].argmin(zero, y[i], penalty)
        x = mean(w, [2 * local[i] - y[i] for i in range(m)])
        xs.append(x)
    return np.array(xs)


def inexact_fedsplit(
    clients, w, x, rounds, step_size, local_steps, penalty, start, heard=None, rows=None
):
    """Inexact FedSplit: gradient steps on the proximal sub-problem from one of three starts."""
    m, xs = len(clients), []
    z, last = [x for _ in range(m)], [x for _ in range(m)]
    for r in range(rounds):
        for i in active_clients(heard, r, m):
            centre = 2 * x - z[i]
            u = {"dual": centre, "primal": x, "warm": last[i]}[start]
            for k in range(local_steps):
                g = clients[i].grad(u, picked(rows, r, i, k))
                u = u - step_size * (g + penalty * (u - centre))
            last[i] = u
            z[i] = z[i] + 2 * (u - x)
        x = mean(w, z)
        xs.append(x)
    return np.array(xs)


def gpdmm(clients, w, x, rounds, step_size, local_steps, penalty, heard=None, rows=None):
    """GPDMM, Algorithm 1 of Zhang et al. (2022): from the last iterate, and up goes the average."""
    m, xs = len(clients), []
    at_server, last, sent = [np.zeros_like(x)] * m, [x] * m, [x] * m
    for r in range(rounds):
        for i in active_clients(heard, r, m):
            u, iterates = last[i], []
            for k in range(local_steps):
                g = clients[i].grad(u, picked(rows, r, i, k))
                u = (u / step_size + penalty * x - at_server[i] - g) / (1 / step_size + penalty)
                iterates.append(u)
            average = np.mean(iterates, axis=0)
            at_client = penalty * (x - average) - at_server[i]
            last[i], sent[i] = u, average - at_client / penalty
        x = mean(w, sent)
        at_server = [penalty * (y - x) for y in sent]
        xs.append(x)
    return np.array(xs)


def agpdmm(clients, w, x, rounds, step_size, local_steps, penalty, heard=None, rows=None):
    """AGPDMM, Algorithm 2 of Zhang et al. (2022): the server sends x_s and lambda_{s|i}."""
    m, xs = len(clients), []
    at_server, sent = [np.zeros_like(x)] * m, [x] * m
    for r in range(rounds):
        for i in active_clients(heard, r, m):
            down = x, at_server[i]
            u = down[0]
            for k in range(local_steps):
                g = clients[i].grad(u, picked(rows, r, i, k))
                u = (u / step_size + penalty * down[0] - down[1] - g) / (1 / step_size + penalty)
            at_client = penalty * (down[0] - u) - down[1]
            sent[i] = u - at_client / penalty
        x = mean(w, sent)
        at_server = [penalty * (y - x) for y in sent]
        xs.append(x)
    return np.array(xs)


def scaffnew(clients, w, x, iterations, step_size, communication_probability):
    """Scaffnew, Algorithm 2 of Mishchenko et al. (2022): T - 1 iterations alone, one together."""
    m, xs = len(clients), []
    local, shifts = [x for _ in range(m)], [np.zeros_like(x) for _ in range(m)]
    for T in iterations:
        for t in range(T):
            hat = [local[i] - step_size * (clients[i].grad(local[i]) - shifts[i]) for i in range(m)]
            local = [mean(w, hat)] * m if t == T - 1 else hat
            for i in range(m):
                gap = local[i] - hat[i]
                shifts[i] = shifts[i] + communication_probability / step_size * gap
        xs.append(local[0])
    return np.array(xs)


def feddyn(clients, w, x, rounds, penalty, heard=None):
    """FedDyn, Algorithm 1 of Acar et al. (2021), the running gradient taken at the local model."""
    h, gradients, xs = np.zeros_like(x), [np.zeros_like(x) for _ in clients], []
    for r in range(rounds):
        local = {}
        active = active_clients(heard, r, len(clients))
        for i in active:
            local[i] = clients[i].argmin(-gradients[i], x, penalty)
            gradients[i] = clients[i].grad(local[i])
        for i in active:
            h = h - penalty * w[i] * (local[i] - x)
        x = mean_heard(w, local, active) - h / penalty
        xs.append(x)
    return np.array(xs)
