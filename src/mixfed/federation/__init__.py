"""The federation: the same fit across sites, where rows stay with their owner.

    server: recipe -> FederatedPool -> Transport  ==bytes==>  Site -> LocalPool -> its own clients

For owners and operators. What travels (`messages`), the site (`site`), its owner's rules (`privacy`), the pool (`pool`)
and the conduct of a run (`conduct`) know of no engine. An engine is a `Transport`: `InProcess` calls sites directly;
`flare` is the one for NVIDIA FLARE.
"""

from .conduct import conduct
from .job import Job
from .pool import FederatedPool
from .site import Site
from .site_file import open_site
from .transport import InProcess, Transport

__all__ = ["FederatedPool", "InProcess", "Job", "Site", "Transport", "conduct", "open_site"]
