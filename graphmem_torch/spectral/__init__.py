"""Analyses by the Laplacian of a graph: communities, resistances, bridges, frontiers, structure.

Imports from `linalg` and the layers below it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphmem_torch.lazy import lazy_names

if TYPE_CHECKING:
    from graphmem_torch.linalg.component import components
    from graphmem_torch.linalg.laplacians import Laplacian, laplacian
    from graphmem_torch.spectral.bridge import Bridges, bridge_scores, bridges
    from graphmem_torch.spectral.community import communities, fiedler, modularity
    from graphmem_torch.spectral.electrical import ElectricalNetwork
    from graphmem_torch.spectral.link_prediction import (
        PredictedLinks,
        linear_autoencoder,
        predict_links,
    )
    from graphmem_torch.spectral.links import suggest_links
    from graphmem_torch.spectral.resistance import (
        Frontiers,
        ResistanceEmbedding,
        centrality,
        effective_resistance,
        frontiers,
        resistance_embedding,
    )
    from graphmem_torch.spectral.structure import (
        Frustration,
        Structure,
        frustration,
        structure_of,
    )

__all__ = [
    "Bridges",
    "ElectricalNetwork",
    "Frontiers",
    "Frustration",
    "Laplacian",
    "PredictedLinks",
    "ResistanceEmbedding",
    "Structure",
    "bridge_scores",
    "bridges",
    "centrality",
    "communities",
    "components",
    "effective_resistance",
    "fiedler",
    "frontiers",
    "frustration",
    "laplacian",
    "linear_autoencoder",
    "modularity",
    "predict_links",
    "resistance_embedding",
    "structure_of",
    "suggest_links",
]

_NAMES = {
    "linalg.component": "components",
    "linalg.laplacians": "Laplacian laplacian",
    "spectral.bridge": "Bridges bridge_scores bridges",
    "spectral.community": "communities fiedler modularity",
    "spectral.electrical": "ElectricalNetwork",
    "spectral.link_prediction": "PredictedLinks linear_autoencoder predict_links",
    "spectral.links": "suggest_links",
    "spectral.resistance": "Frontiers ResistanceEmbedding centrality effective_resistance "
    "frontiers resistance_embedding",
    "spectral.structure": "Frustration Structure frustration structure_of",
}

__getattr__ = lazy_names(__name__, _NAMES)
