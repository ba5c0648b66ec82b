from .container import Container, Sequential
from .linear import Linear
from .activation import Tanh
from .simple import Identity
from .module import Module, Criterion
from .opaque import Opaque
from .t7 import load, save
from .table_arithmetic import (
    MM,
    MV,
    CAddTable,
    CAddTensorTable,
    CDivTable,
    CMaxTable,
    CMinTable,
    CMulTable,
    CSubTable,
    MixtureTable,
)
from .tables import (
    FlattenTable,
    JoinTable,
    NarrowTable,
    SelectTable,
    SplitTable,
    ZipTable,
    ZipTableOneToMany,
)
