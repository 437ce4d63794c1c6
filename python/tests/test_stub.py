"""The stub of the native module names what is there, and the package says that it is typed."""

import ast
from importlib import metadata, resources

import livetime
from livetime import _native


def test_stub_and_module_have_the_same_names():
    stub = ast.parse(resources.files("livetime").joinpath("_native.pyi").read_text())
    classes = {node.name: node for node in stub.body if isinstance(node, ast.ClassDef)}
    public = {name for name in dir(_native) if not name.startswith("_")}
    assert set(classes) == public
    for name, node in classes.items():
        cls = getattr(_native, name)
        in_stub = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
        in_module = {member for member in vars(cls) if not member.startswith("_")}
        assert in_stub - {"__init__"} == in_module, name


def test_the_version_is_that_of_the_installed_package():
    assert livetime.__version__ == metadata.version("livetime")


def test_the_package_is_typed():
    assert resources.files("livetime").joinpath("py.typed").is_file()
