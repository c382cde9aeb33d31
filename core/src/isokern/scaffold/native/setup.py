"""Builds the kernels, and what the library has besides, into the extension module isokern_acme._native."""

from setuptools import setup

from isokern.build import setup_arguments

setup(
    **setup_arguments(
        "isokern_acme._native",
        kernels="src/isokern_acme/kernels",
        sources=["src/isokern_acme/chip.c", "host_device.c"],  # the second one is core's
    )
)
