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

_MODULE = {
    "Bridges": "spectral.bridge",
    "ElectricalNetwork": "spectral.electrical",
    "Frontiers": "spectral.resistance",
    "Frustration": "spectral.structure",
    "Laplacian": "linalg.laplacians",
    "PredictedLinks": "spectral.link_prediction",
    "ResistanceEmbedding": "spectral.resistance",
    "Structure": "spectral.structure",
    "bridge_scores": "spectral.bridge",
    "bridges": "spectral.bridge",
    "centrality": "spectral.resistance",
    "communities": "spectral.community",
    "components": "linalg.component",
    "effective_resistance": "spectral.resistance",
    "fiedler": "spectral.community",
    "frontiers": "spectral.resistance",
    "frustration": "spectral.structure",
    "laplacian": "linalg.laplacians",
    "linear_autoencoder": "spectral.link_prediction",
    "modularity": "spectral.community",
    "predict_links": "spectral.link_prediction",
    "resistance_embedding": "spectral.resistance",
    "structure_of": "spectral.structure",
    "suggest_links": "spectral.links",
}

__getattr__ = lazy_names(__name__, _MODULE)
