"""PyTorch operators that make the host wait, each with why it does and what to write instead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from boundby.rules.rule import Remedy


@dataclass(frozen=True)
class OperatorSync:
    """One way in which an operator waits. ``operators`` are its names in a trace."""

    key: str
    label: str  # as people write it
    operators: tuple[str, ...]
    because: str  # completes "waits for the GPU: "
    advice: tuple[str, ...]
    remedy: Remedy


NONZERO = OperatorSync(
    "nonzero",
    "torch.nonzero",
    ("aten::nonzero", "aten::nonzero_numpy", "aten::argwhere"),
    "the host has to know how many elements there are",
    (
        "Keep the shape: compute on all elements and choose with torch.where(mask, x, 0), or multiply by the mask, "
        "in place of gathering with nonzero's indices",
        "Careful: a sparse mask can be worth its sync, if few elements are left and what follows is costly",
    ),
    Remedy(
        "`torch.nonzero`, `torch.argwhere` and `torch.where(mask)` return as many rows as the mask has elements set: "
        "only the device knows how many. Compute on all elements and leave out what does not count.",
        """
        index = (labels != 255).nonzero().squeeze(1)              # waits
        loss = cross_entropy(scores[index], labels[index])

        loss = cross_entropy(scores, labels, ignore_index=255)    # does not
        total = torch.where(mask, losses, 0.0).sum() / mask.sum().clamp(min=1)
        """,
        caution="a sparse mask can be worth its sync: with 1 % of the elements left, a costly step on those alone may "
        "save more than the wait takes. Measure both. An upper bound known beforehand allows "
        "`torch.nonzero_static(mask, size=n)` where your PyTorch has it for CUDA.",
    ),
)
UNIQUE = OperatorSync(
    "unique",
    "torch.unique",
    ("aten::_unique2", "aten::_unique", "aten::unique_dim", "aten::unique_consecutive", "aten::unique_dim_consecutive"),
    "the host has to know how many distinct values there are",
    (
        "Count over a fixed number of classes in place of unique: x.flatten().sort().values, then "
        "torch.searchsorted(sorted, torch.arange(classes + 1, device=x.device)).diff()",
        "Work on all classes at once (scatter_add, one_hot) instead of looping over the labels that are present",
    ),
    Remedy(
        "`torch.unique` returns as many values as there are distinct ones. With a known range of labels, count in an "
        "array of fixed size; a class that is absent has count 0. (`torch.bincount` waits too, for the largest value.)",
        """
        for label in torch.unique(labels).tolist():               # waits, then once for each label
            total = total + losses[labels == label].mean()

        ordered = labels.flatten().sort().values                  # does not
        counts = torch.searchsorted(ordered, torch.arange(classes + 1, device=labels.device)).diff()
        sums = torch.zeros(classes, device=labels.device).scatter_add_(0, labels.flatten(), losses.flatten())
        total = (sums / counts.clamp(min=1)).sum()
        """,
        caution="a sort of all elements is not free; with very many of them and few waits, unique may be the cheaper.",
    ),
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
    Remedy(
        "`x[mask]` with a boolean mask runs `nonzero` inside, and its result has a size that only the device knows. "
        "`x[mask] = v` waits as well.",
        """
        loss = losses[mask].mean()                                # waits
        x[mask] = 0.0                                             # waits

        loss = torch.where(mask, losses, 0.0).sum() / mask.sum().clamp(min=1)   # does not
        x.masked_fill_(mask, 0.0)                                 # does not
        """,
        caution="a sparse mask can be worth its sync: if few elements are left, work on them alone may save more than "
        "the wait takes. NaNs outside the mask do not vanish by multiplying with 0: use torch.where.",
    ),
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
    Remedy(
        "`.item()`, `float(t)`, `int(t)`, `bool(t)`, `if t:`, `print(t)` and a tensor used as a Python index read one "
        "value back, which waits for all the work that it depends on.",
        """
        running += loss.item()                                    # waits in every step

        running += loss.detach()                                  # stays on the device
        if step % 100 == 0:
            print(running.item() / 100)                           # waits once in 100 steps
        """,
        caution="a loop that has to stop on a value (convergence, early exit) must read it: test it every few turns.",
    ),
)
EQUAL = OperatorSync(
    "equal",
    "torch.equal",
    ("aten::equal", "aten::allclose"),
    "its result is a Python bool",
    ("Compare on the device with (a == b).all() and keep the result there, or compare only in tests",),
    Remedy(
        "`torch.equal` and `torch.allclose` return a Python bool, so they wait. Compare on the device, or outside "
        "the training loop.",
        "same = (a == b).all()  # a tensor: nobody waits until it is read",
    ),
)
REPEAT = OperatorSync(
    "repeat-interleave",
    "torch.repeat_interleave",
    ("aten::repeat_interleave",),
    "the host has to know how long the result is",
    ("Give the length: torch.repeat_interleave(x, repeats, output_size=n)",),
    Remedy(
        "With repeats on the device, `torch.repeat_interleave` has to ask how long its result is, unless it is told.",
        "torch.repeat_interleave(x, repeats, output_size=n)",
    ),
)
BINCOUNT = OperatorSync(
    "bincount",
    "torch.bincount",
    ("aten::bincount", "aten::_bincount", "aten::histogram"),
    "the host has to know the largest value (minlength does not help)",
    ("Count into an array of fixed size: torch.zeros(classes, device=d).scatter_add_(0, x, torch.ones_like(x, ...))",),
    Remedy(
        "`torch.bincount` asks for the largest value to size its result, whatever `minlength` says.",
        "counts = torch.zeros(classes, device=x.device).scatter_add_(0, x, torch.ones_like(x, dtype=torch.float))",
        caution="scatter_add_ with floating-point values is not deterministic in its last bits.",
    ),
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
    Remedy(
        "`torch.linalg` functions read back an error code. Those with `_ex` in the name leave it on the device.",
        "factor, info = torch.linalg.cholesky_ex(a)  # info stays on the device; check it now and then",
        caution="errors then pass unseen unless info is looked at.",
    ),
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
    Remedy(
        "`.cpu()`, `.to('cpu')`, `.numpy()` and `.tolist()` wait until the data are there. What is only logged can be "
        "copied later, or without waiting into pinned memory.",
        """
        predictions = output.cpu()                                # waits

        pinned.copy_(output, non_blocking=True)                   # pinned = torch.empty(..., pin_memory=True)
        done.record()                                             # done = torch.cuda.Event()
        ...                                                       # launch more work first
        done.synchronize()                                        # read pinned after this only
        """,
        caution="with non_blocking=True to the host the data are not there until an event or stream was waited for; "
        "reading earlier gives garbage without an error.",
    ),
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
    Remedy(
        "A copy from pageable memory is staged by the driver while the calling thread waits.",
        """
        loader = DataLoader(data, pin_memory=True, num_workers=4)
        images = images.to(device, non_blocking=True)
        """,
        caution="pinning takes time itself, often more than the copy: pin buffers once or let the loader do it.",
    ),
)

# In the order in which `sync-operator` teaches them.
EVERY = (NONZERO, UNIQUE, BOOLEAN_INDEX, ITEM, TO_HOST, TO_DEVICE, REPEAT, BINCOUNT, EQUAL, LINALG)
_BY_NAME = {name: one for one in EVERY for name in one.operators if one not in (TO_HOST, TO_DEVICE)}
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
