"""Cases for rules/shaping.py."""

import numpy as np

from meintorch.core.shapes import astype
from tests.cases import Case, complexes, normal

v, w, m, n, x = normal(4), normal(3, seed=1), normal(2, 3), normal(2, 3, seed=1), normal(2, 3, 4)
z, square, scalar, empty = complexes(2, 3), normal(3, 3), np.array(1.5), np.zeros((0, 3))
fortran = np.asfortranarray(normal(3, 4))
constant = normal(2, 3, seed=5)


def bent(call):
    """Square the outputs: of a linear function alone the second derivative says nothing."""

    def squares(*args):
        out = call(*args)
        return type(out)([o * o for o in out]) if isinstance(out, (list, tuple)) else out * out

    return squares


def both(row, call, *args, label=""):
    """Make the case of a linear function and that of its square."""
    return [Case(row, call, args, label=label), Case(row, bent(call), args, label=f"{label}, squared".strip(", "))]


CASES = [
    # copies
    *both(np.copy, np.copy, m),
    *both(np.copy, lambda a: a.copy(), fortran, label="method"),
    *both(astype, lambda a: a.astype(np.complex128), m, label="real to complex"),
    *both(astype, lambda a: a.astype(np.float64), m),
    *both(astype, lambda a: a.astype(a.dtype, copy=False), z, label="complex, no copy"),
    # shapes and axes
    *both(np.reshape, lambda a: np.reshape(a, (3, 2)), m),
    *both(np.reshape, lambda a: a.reshape(4, -1), x, label="method"),
    *both(np.reshape, lambda a: a.reshape((6, 4)), x, label="method with a tuple"),
    *both(np.reshape, lambda a: np.reshape(a, (4, 6), order="F"), x, label="order F"),
    *both(np.reshape, lambda a: np.reshape(a, (4, 6), "F"), x.transpose(2, 0, 1), label="order F, transposed"),
    *both(np.reshape, lambda a: np.reshape(a, 12), fortran, label="from Fortran order"),
    *both(np.reshape, lambda a: np.reshape(a, (1, 1)), scalar, label="0-d"),
    *both(np.reshape, lambda a: np.reshape(a, ()), np.ones((1, 1)), label="to 0-d"),
    *both(np.reshape, lambda a: np.reshape(a, (3, 0, 2)), empty, label="size 0"),
    *both(np.reshape, lambda a: np.reshape(a, (3, 2)), z, label="complex"),
    *both(np.ravel, np.ravel, m),
    *both(np.ravel, lambda a: np.ravel(a, order="F"), m, label="order F"),
    *both(np.ravel, np.ravel, scalar, label="0-d"),
    *both(np.ravel, lambda a: a.flatten("F"), x, label="flatten"),
    *both(np.ravel, lambda a: a.flat[2], x, label="flat"),
    *both(np.transpose, np.transpose, m),
    *both(np.transpose, lambda a: a.T, x, label="property"),
    *both(np.transpose, lambda a: np.transpose(a, (1, 2, 0)), x, label="axes"),
    *both(np.transpose, lambda a: np.transpose(a, axes=[-1, 0, -2]), x, label="negative axes"),
    *both(np.transpose, lambda a: a.transpose(2, 0, 1), x, label="method"),
    *both(np.transpose, np.transpose, scalar, label="0-d"),
    *both(np.transpose, lambda a: np.permute_dims(a, (1, 0)), z, label="permute_dims, complex"),
    *both(np.matrix_transpose, np.matrix_transpose, x),
    *both(np.swapaxes, lambda a: np.swapaxes(a, 0, -1), x),
    *both(np.swapaxes, lambda a: a.swapaxes(1, 0), x, label="method"),
    *both(np.moveaxis, lambda a: np.moveaxis(a, 0, -1), x),
    *both(np.moveaxis, lambda a: np.moveaxis(a, [0, -1], [1, 0]), x, label="several"),
    *both(np.rollaxis, lambda a: np.rollaxis(a, 2), x),
    *both(np.rollaxis, lambda a: np.rollaxis(a, 0, 3), x, label="to the end"),
    *both(np.rollaxis, lambda a: np.rollaxis(a, -2, start=-1), x, label="negative"),
    *both(np.rollaxis, lambda a: np.rollaxis(a, 0, 2), x, label="to the middle"),
    *both(np.expand_dims, lambda a: np.expand_dims(a, 0), m),
    *both(np.expand_dims, lambda a: np.expand_dims(a, axis=(0, -1)), m, label="axes"),
    *both(np.squeeze, np.squeeze, normal(1, 3, 1)),
    *both(np.squeeze, lambda a: np.squeeze(a, axis=-1), normal(1, 3, 1), label="axis"),
    *both(np.squeeze, np.squeeze, np.ones((1, 1)), label="to 0-d"),
    *both(np.broadcast_to, lambda a: np.broadcast_to(a, (2, 4, 3)), normal(4, 1)),
    *both(np.broadcast_to, lambda a: np.broadcast_to(a, (2, 2)), scalar, label="0-d"),
    *both(np.broadcast_to, lambda a: np.broadcast_to(a, (3,)), w, label="same shape"),
    *both(np.broadcast_to, lambda a: np.broadcast_to(a, 3), np.ones(1), label="int"),
    *both(np.broadcast_to, lambda a: np.broadcast_to(a, (0, 2, 3)), z, label="size 0, complex"),
    *both(np.broadcast_arrays, np.broadcast_arrays, w, normal(2, 1)),
    *both(np.broadcast_arrays, lambda a: np.broadcast_arrays(constant, a, 2.0), scalar, label="second traced"),
    # joining
    *both(np.concatenate, lambda a, b: np.concatenate([a, b]), m, n),
    *both(np.concatenate, lambda a, b: np.concatenate((a, b), axis=-1), m, normal(2, 2), label="negative axis"),
    *both(np.concatenate, lambda a, b: np.concatenate([a, b], axis=None), m, w, label="axis None"),
    *both(np.concatenate, lambda a: np.concatenate([constant, a, constant, a], 1), m, label="some traced, one twice"),
    *both(np.concatenate, lambda a, b: np.concatenate([a, b, a]), v, w, label="1-d"),
    *both(np.concatenate, lambda a, b: np.concatenate([a, b]), m, z, label="real and complex"),
    *both(np.concatenate, lambda a, b: np.concatenate([a, b], dtype=np.complex128), m, n, label="dtype="),
    *both(np.concatenate, lambda a, b: np.concatenate([a, b]), empty, m, label="size 0"),
    *both(np.concatenate, lambda a, b: np.concat([a, b], axis=1), x, normal(2, 1, 4), label="concat"),
    *both(np.stack, lambda a, b: np.stack([a, b]), m, n),
    *both(np.stack, lambda a, b: np.stack((a, b), axis=1), m, n, label="axis"),
    *both(np.stack, lambda a, b: np.stack((a, b), axis=-1), m, n, label="negative axis"),
    *both(np.stack, lambda a: np.stack([a[0], 2.0, a[2]]), w, label="scalars"),
    *both(np.stack, lambda a, b: np.stack([constant, a, b], 2), m, z, label="real and complex, some traced"),
    *both(np.column_stack, lambda a, b: np.column_stack([a, b]), w, square),
    *both(np.column_stack, lambda a, b: np.column_stack((a, b)), scalar, np.array(2.0), label="0-d"),
    *both(np.append, np.append, m, w),
    *both(np.append, lambda a, b: np.append(a, b, axis=0), m, n, label="axis"),
    *both(np.append, lambda a: np.append([[1.0], [2.0]], a), scalar, label="second traced"),
    *both(np.append, lambda a: np.append(a, [a[0], 2.0]), w, label="list"),
    *both(np.block, lambda a, b: np.block([[a, b], [b, a]]), m, n),
    *both(np.block, lambda a, b: np.block([a, 1.0, b]), v, w, label="1-d and numbers"),
    *both(np.block, lambda a: np.block([[constant], [a]]), w, label="ranks differ"),
    *both(np.block, np.block, m, label="no list"),
]
for fun in (np.atleast_1d, np.atleast_2d, np.atleast_3d):
    CASES += both(fun, fun, scalar, label="0-d")
    CASES += both(fun, fun, w)
    CASES += both(fun, fun, x, label="3-d")
    CASES += both(fun, lambda a, b, f=fun: f(a, constant, b), w, m, label="several")
for fun in (np.vstack, np.hstack, np.dstack):
    CASES += both(fun, lambda a, b, f=fun: f([a, b]), m, n)
    CASES += both(fun, lambda a, b, f=fun: f((a, b, np.ones(3))), w, w + 1, label="1-d")
    CASES += both(fun, lambda a, f=fun: f([a, 2.0]), scalar, label="0-d")
    CASES += both(fun, lambda a, f=fun: f([constant, a]), z, label="second traced, complex")
    CASES += both(fun, fun, normal(2, 2, 3), label="an array of arrays")
CASES += both(np.vstack, lambda a, b: np.vstack([a, b], dtype=np.complex128), m, w, label="dtype=")

for fun in (np.split, np.array_split):
    CASES += [
        *both(fun, lambda a, f=fun: f(a, 2), v),
        *both(fun, lambda a, f=fun: f(a, 3, axis=1), m, label="axis"),
        *both(fun, lambda a, f=fun: f(a, [1, 2], -1), z, label="indices, complex"),
        *both(fun, lambda a, f=fun: f(a, (3, 1)), v, label="indices that descend"),
        *both(fun, lambda a, f=fun: f(a, np.array([1, -1, 9])), v, label="indices that are negative or too large"),
        *both(fun, lambda a, f=fun: f(a, 2)[1], v, label="one piece used"),
    ]
CASES += [
    *both(np.array_split, lambda a: np.array_split(a, 3), v, label="unequal"),
    *both(np.hsplit, lambda a: np.hsplit(a, 2), x[:, :2]),
    *both(np.hsplit, lambda a: np.hsplit(a, [1]), v, label="1-d"),
    *both(np.vsplit, lambda a: np.vsplit(a, 2), m),
    *both(np.dsplit, lambda a: np.dsplit(a, [1, 3]), x),
    # repeating
    *both(np.tile, lambda a: np.tile(a, 2), m),
    *both(np.tile, lambda a: np.tile(a, (2, 3, 2)), m, label="more axes"),
    *both(np.tile, lambda a: np.tile(a, [2, 1]), x, label="fewer axes"),
    *both(np.tile, lambda a: np.tile(a, 3), scalar, label="0-d"),
    *both(np.tile, lambda a: np.tile(a, (0, 1)), z, label="none, complex"),
    *both(np.repeat, lambda a: np.repeat(a, 3), m),
    *both(np.repeat, lambda a: a.repeat(2, axis=0), m, label="method, axis"),
    *both(np.repeat, lambda a: np.repeat(a, [1, 0, 2], axis=-1), z, label="array, complex"),
    *both(np.repeat, lambda a: np.repeat(a, np.array([2]), axis=1), x, label="array of one"),
    *both(np.repeat, lambda a: np.repeat(a, [0, 1, 2, 0, 1, 3]), m, label="array, all axes"),
    *both(np.repeat, lambda a: np.repeat(a, 2), scalar, label="0-d"),
    *both(np.resize, lambda a: np.resize(a, (3, 3)), v),
    *both(np.resize, lambda a: np.resize(a, 2), m, label="smaller"),
    # rearranging
    *both(np.flip, np.flip, m),
    *both(np.flip, lambda a: np.flip(a, 0), m, label="axis"),
    *both(np.flip, lambda a: np.flip(a, axis=(0, -1)), x, label="axes"),
    *both(np.fliplr, np.fliplr, m),
    *both(np.flipud, np.flipud, z),
    *both(np.rot90, np.rot90, m),
    *both(np.rot90, lambda a: np.rot90(a, -1, axes=(2, 0)), x, label="axes"),
    *both(np.rot90, lambda a: np.rot90(a, k=2), m, label="twice"),
    *both(np.roll, lambda a: np.roll(a, 1), m),
    *both(np.roll, lambda a: np.roll(a, -3, axis=1), m, label="axis"),
    *both(np.roll, lambda a: np.roll(a, (1, 2), axis=(0, -1)), x, label="tuple"),
    *both(np.roll, lambda a: np.roll(a, 1, axis=(0, 1)), z, label="one shift, several axes, complex"),
    *both(np.fft.fftshift, np.fft.fftshift, normal(5)),
    *both(np.fft.fftshift, lambda a: np.fft.fftshift(a, axes=1), m, label="axis"),
    *both(np.fft.ifftshift, np.fft.ifftshift, normal(3, 5)),
    *both(np.meshgrid, np.meshgrid, v, w),
    *both(np.meshgrid, lambda a, b: np.meshgrid(a, np.arange(2.0), b, indexing="ij"), v, w, label="ij, some traced"),
    *both(np.meshgrid, lambda a, b: np.meshgrid(a, b, sparse=True), v, w, label="sparse"),
    *both(np.meshgrid, lambda a, b: np.meshgrid(a, b, copy=False), v, scalar, label="no copy, 0-d"),
    *both(np.meshgrid, np.meshgrid, v, label="one"),
    # diagonals and triangles
    *both(np.diag, np.diag, w),
    *both(np.diag, lambda a: np.diag(a, -2), w, label="below"),
    *both(np.diag, lambda a: np.diag(a, k=1), m, label="extract"),
    *both(np.diag, lambda a: np.diag(a, -1), z, label="extract below, complex"),
    *both(np.diagflat, np.diagflat, m),
    *both(np.diagflat, lambda a: np.diagflat(a, 1), scalar, label="0-d"),
    *both(np.tril, np.tril, m),
    *both(np.tril, lambda a: np.tril(a, -1), x, label="3-d"),
    *both(np.triu, lambda a: np.triu(a, k=1), z, label="complex"),
    *both(np.triu, np.triu, w, label="1-d"),
]
for fun in (np.diagonal, np.trace):
    CASES += [
        *both(fun, fun, square),
        *both(fun, lambda a, f=fun: f(a, 1), m, label="offset"),
        *both(fun, lambda a, f=fun: f(a, -1), m, label="offset below"),
        *both(fun, lambda a, f=fun: f(a, offset=-1, axis1=2, axis2=0), x, label="axes exchanged"),
        *both(fun, lambda a, f=fun: f(a, 1, 1, 2), x, label="last axes"),
        *both(fun, lambda a, f=fun: f(a, 0, -1, 1), complexes(3, 2, 3), label="complex"),
        *both(fun, lambda a, f=fun: f(a, 7), m, label="outside"),
    ]
CASES += [
    *both(np.trace, lambda a: np.trace(a, dtype=np.complex128), square, label="dtype="),
    # adding and removing entries
    *both(np.delete, lambda a: np.delete(a, 1), v),
    *both(np.delete, lambda a: np.delete(a, [0, -1], axis=1), x, label="list, axis"),
    *both(np.delete, lambda a: np.delete(a, slice(None, None, 2), -1), x, label="slice"),
    *both(np.delete, lambda a: np.delete(a, np.array([True, False]), axis=0), z, label="mask, complex"),
    *both(np.delete, lambda a: np.delete(a, 4), m, label="all axes"),
    *both(np.insert, lambda a, b: np.insert(a, 1, b), v, w),
    *both(np.insert, lambda a, b: np.insert(a, -1, b), v, scalar, label="number"),
    *both(np.insert, lambda a, b: np.insert(a, 1, b, axis=1), x, normal(2, 4), label="axis"),
    *both(np.insert, lambda a, b: np.insert(a, 1, b, axis=1), m, np.array([1.0, 2.0]), label="column"),
    *both(np.insert, lambda a, b: np.insert(a, [1], b, axis=1), m, normal(2, 2), label="list of one"),
    *both(np.insert, lambda a, b: np.insert(a, [3, 0, 3], b), v, w, label="unsorted, repeated"),
    *both(np.insert, lambda a, b: np.insert(a, [2, 0], b, axis=-1), z, normal(2, 1), label="complex"),
    *both(np.insert, lambda a, b: np.insert(a, slice(0, 4, 2), b), m, np.array([1.0, 2.0]), label="slice, all axes"),
    *both(np.insert, lambda a: np.insert([1.0, 2.0], 1, a), w, label="values traced"),
    *both(np.pad, lambda a: np.pad(a, 1), m),
    *both(np.pad, lambda a: np.pad(a, ((1, 0), (0, 2)), constant_values=3.0), m, label="constant"),
    *both(np.pad, lambda a, c: np.pad(a, (1, 2), constant_values=c), m, scalar, label="traced constant"),
    *both(np.pad, lambda a, c: np.pad(a, 1, constant_values=c), m, normal(2, 2), label="four traced constants"),
    *both(np.pad, lambda a: np.pad(a, (2, 1)), v, label="1-d"),
    *both(np.pad, lambda a: np.pad(a, 2, mode="wrap"), z, label="wrap, complex"),
    *both(np.trim_zeros, lambda a: np.trim_zeros(np.pad(a, 2)), v),
    *both(np.trim_zeros, lambda a: np.trim_zeros(np.pad(a, 1), "f"), z[0], label="front, complex"),
    *both(np.trim_zeros, lambda a: np.trim_zeros(0 * a), v, label="all zero"),
    # differences
    *both(np.diff, np.diff, v),
    *both(np.diff, lambda a: np.diff(a, 2, axis=0), normal(4, 2), label="twice, axis"),
    *both(np.diff, lambda a: np.diff(a, n=0), v, label="none"),
    *both(np.diff, lambda a: np.diff(a, n=6), v, label="too often"),
    *both(np.diff, lambda a, b, c: np.diff(a, prepend=b, append=c), m, scalar, normal(2, 2), label="ends"),
    *both(np.diff, lambda a, b: np.diff(a, 2, 0, b), normal(3, 2), normal(2, 2), label="prepend, positional"),
    *both(np.diff, lambda c: np.diff(constant, axis=0, append=c), normal(1, 3), label="append traced"),
    *both(np.diff, np.diff, z, label="complex"),
    *both(np.ediff1d, np.ediff1d, m),
    *both(np.ediff1d, lambda a, b: np.ediff1d(a, to_begin=b, to_end=[1.0, 2.0]), v, scalar, label="ends"),
    *both(np.ediff1d, lambda a, b: np.ediff1d(a, [b[0], b[1]]), v, w, label="end a list"),
]
for mode in ("edge", "reflect", "symmetric"):
    CASES += both(np.pad, lambda a, mode=mode: np.pad(a, ((2, 1), (0, 4)), mode), m, label=mode)
if hasattr(np, "unstack"):
    CASES += both(np.unstack, np.unstack, m)
    CASES += both(np.unstack, lambda a: np.unstack(a, axis=-1), x, label="axis")
    CASES += both(np.unstack, np.unstack, w, label="1-d")
if hasattr(np, "astype"):
    CASES += both(np.astype, lambda a: np.astype(a, np.complex128, copy=False), m)
