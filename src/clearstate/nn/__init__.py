from .container import Container, Sequential
from .linear import Linear
from .activation import Tanh
from .simple import Identity
from .module import Module, Criterion
from .opaque import Opaque
from .t7 import load, save
