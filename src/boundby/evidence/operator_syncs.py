"""PyTorch operators that make the host wait, each with why it does and what to write instead.

The page of the rule `sync-operator` shows the rewrites as code.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct


class OperatorSync(Struct, frozen=True):
    """One way in which an operator waits. ``operators`` are its names in a trace."""

    key: str
    label: str  # as people write it
    operators: tuple[str, ...]
    because: str  # completes "waits for the GPU: "
    advice: tuple[str, ...]
    code: str


NONZERO = OperatorSync(
    "nonzero",
    "torch.nonzero",
    ("aten::nonzero", "aten::nonzero_numpy", "aten::argwhere"),
    "the host has to know how many elements there are",
    (
        "Keep the shape: compute on all elements and choose with torch.where(mask, x, 0), or multiply by the mask, "
        "instead of gathering with nonzero's indices",
        "Careful: a sparse mask can be worth its sync, if few elements are left and what follows is costly",
    ),
    "x = torch.where(mask, x, 0)  # all elements stay: no nonzero()",
)
UNIQUE = OperatorSync(
    "unique",
    "torch.unique",
    ("aten::_unique2", "aten::_unique", "aten::unique_dim", "aten::unique_consecutive", "aten::unique_dim_consecutive"),
    "the host has to know how many distinct values there are",
    (
        "Count over a fixed number of classes instead of unique: x.flatten().sort().values, then "
        "torch.searchsorted(sorted, torch.arange(classes + 1, device=x.device)).diff()",
        "Work on all classes at once (scatter_add, one_hot) instead of looping over the labels that are present",
    ),
    "counts = torch.zeros(classes, device=x.device).scatter_add_(0, x, torch.ones_like(x, dtype=torch.float))",
)
BOOLEAN_INDEX = OperatorSync(
    "boolean-index",
    "a boolean index",
    (
        "aten::index",
        "aten::index_put_",
        "aten::_index_put_impl_",
        "aten::index_put",
        "aten::masked_select",
        "aten::masked_scatter_",
    ),
    "the host has to know how many elements the mask lets through",
    (
        "Write torch.where(mask, x, 0) for x[mask] in sums and means, x.masked_fill_(mask, v) for x[mask] = v, and "
        "ignore_index= in losses: the shape then stays known",
        "Careful: a sparse mask can be worth its sync, if few elements are left and what follows is costly",
    ),
    "total = torch.where(mask, x, 0).sum()  # in place of x[mask].sum()",
)
ITEM = OperatorSync(
    "item",
    "tensor.item()",
    ("aten::item", "aten::_local_scalar_dense", "aten::is_nonzero"),
    "a value is read back to the host",
    (
        "Keep the value on the device: add up loss.detach() there and read it once every N steps, after the step",
        "Replace `if tensor:` and float(tensor) by torch.where or arithmetic on the device; print and log rarely",
    ),
    "total += loss.detach()  # stays on the GPU, in place of loss.item()",
)
EQUAL = OperatorSync(
    "equal",
    "torch.equal",
    ("aten::equal", "aten::allclose"),
    "its result is a Python bool",
    ("Compare on the device with (a == b).all() and keep the result there, or compare only in tests",),
    "is_equal = (a == b).all()  # stays on the GPU, in place of torch.equal",
)
REPEAT = OperatorSync(
    "repeat-interleave",
    "torch.repeat_interleave",
    ("aten::repeat_interleave",),
    "the host has to know how long the result is",
    ("Give the length: torch.repeat_interleave(x, repeats, output_size=n)",),
    "torch.repeat_interleave(x, repeats, output_size=n)",
)
BINCOUNT = OperatorSync(
    "bincount",
    "torch.bincount",
    ("aten::bincount", "aten::_bincount", "aten::histogram"),
    "the host has to know the largest value (minlength does not help)",
    ("Count into an array of fixed size: torch.zeros(classes, device=d).scatter_add_(0, x, torch.ones_like(x, ...))",),
    "torch.zeros(classes, device=x.device).scatter_add_(0, x, torch.ones_like(x, dtype=torch.float))",
)
LINALG = OperatorSync(
    "linalg",
    "torch.linalg",
    (
        *(f"aten::linalg_{name}" for name in ("inv", "solve", "cholesky", "lu_factor", "ldl_factor")),
        "aten::inverse",
        "aten::_linalg_check_errors",
    ),
    "the host checks whether it succeeded",
    ("Use the unchecked variant and test its info on the device: torch.linalg.inv_ex, solve_ex, cholesky_ex",),
    "inverse, info = torch.linalg.inv_ex(a)  # check info after the step",
)
TO_HOST = OperatorSync(
    "copy-to-host",
    ".cpu() / .to(host)",
    ("aten::to", "aten::_to_copy", "aten::copy_"),
    "data is copied to the host, which waits until it is there",
    (
        "Copy only what the host needs, after the step and not in it; for larger results use a pinned buffer with "
        "non_blocking=True and wait for an event when the data are needed",
    ),
    "host.copy_(x, non_blocking=True)  # host = torch.empty(x.shape, pin_memory=True), made once",
)
TO_DEVICE = OperatorSync(
    "copy-to-device",
    ".to(device) from pageable memory",
    ("aten::to", "aten::_to_copy", "aten::copy_"),
    "memory that is not pinned is copied while the host stands by",
    (
        "Pin the source and do not block: DataLoader(pin_memory=True) and x.to(device, non_blocking=True)",
        "Create constants on the device, torch.zeros(n, device=d), and others once, outside the loop",
    ),
    'DataLoader(dataset, pin_memory=True)\nx = x.to("cuda", non_blocking=True)',
)

# In the order in which `sync-operator` teaches them.
EVERY = (NONZERO, UNIQUE, BOOLEAN_INDEX, ITEM, TO_HOST, TO_DEVICE, REPEAT, BINCOUNT, EQUAL, LINALG)
_NAMED = tuple(one for one in EVERY if one is not TO_HOST and one is not TO_DEVICE)
_BY_NAME = {name: one for one in _NAMED for name in one.operators}
_COPIES = frozenset(TO_HOST.operators)


def operator_sync(chain: Sequence[str], *, is_read: bool, is_fed: bool) -> OperatorSync | None:
    """Which way of waiting a chain of operators (innermost first) is; the outermost that is known decides.

    ``is_read``, ``is_fed``: the wait is about a copy to, or from, the host.
    """
    for name in reversed(chain):
        if name in _COPIES:
            if is_read or is_fed:
                return TO_HOST if is_read else TO_DEVICE
            continue
        found = _BY_NAME.get(name)
        if found is BOOLEAN_INDEX and is_fed:  # not a mask: an index that lies on the host
            return TO_DEVICE
        if found is not None:
            return found
    return None
