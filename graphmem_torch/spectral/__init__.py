"""Spectral methods: leading parts of matrices and kernels, and the Laplacian of a graph."""

from __future__ import annotations

from graphmem_torch.spectral.alignment import Alignment, align_modes, principal_angles
from graphmem_torch.spectral.bridges import Bridges, bridge_scores, bridges
from graphmem_torch.spectral.centrality import centrality
from graphmem_torch.spectral.communities import communities, modularity
from graphmem_torch.spectral.components import components
from graphmem_torch.spectral.conjugate_gradient import conjugate_gradient
from graphmem_torch.spectral.cusum import MeanCusum
from graphmem_torch.spectral.decompose import decompose
from graphmem_torch.spectral.drift import CosineDrift, EnergyDrift
from graphmem_torch.spectral.fiedler import fiedler
from graphmem_torch.spectral.frontiers import Frontiers, frontiers
from graphmem_torch.spectral.frustration import Frustration, frustration
from graphmem_torch.spectral.gram import Gram
from graphmem_torch.spectral.gram_svd import gram_svd
from graphmem_torch.spectral.lanczos import lanczos
from graphmem_torch.spectral.laplacian import Laplacian, laplacian
from graphmem_torch.spectral.linear_autoencoder import linear_autoencoder
from graphmem_torch.spectral.link_prediction import PredictedLinks, predict_links
from graphmem_torch.spectral.links import suggest_links
from graphmem_torch.spectral.mode_search import (
    ModeHits,
    atoms_read,
    mode_weights,
    search_modes,
    select_modes,
)
from graphmem_torch.spectral.mode_tracking import ModeTracker
from graphmem_torch.spectral.modes import Modes, find_modes, modes_of
from graphmem_torch.spectral.operator import MatrixOperator, SymmetricOperator
from graphmem_torch.spectral.randomized_svd import Kernel, randomized_svd
from graphmem_torch.spectral.regime import RegimeDetector
from graphmem_torch.spectral.resistance import effective_resistance
from graphmem_torch.spectral.resistance_embedding import ResistanceEmbedding, resistance_embedding
from graphmem_torch.spectral.spectrum import Spectrum, reconstruction_error
from graphmem_torch.spectral.streaming import StreamingSpectrum

__all__ = [
    "Alignment",
    "Bridges",
    "CosineDrift",
    "EnergyDrift",
    "Frontiers",
    "Frustration",
    "Gram",
    "Kernel",
    "Laplacian",
    "MatrixOperator",
    "MeanCusum",
    "ModeHits",
    "ModeTracker",
    "Modes",
    "PredictedLinks",
    "RegimeDetector",
    "ResistanceEmbedding",
    "Spectrum",
    "StreamingSpectrum",
    "SymmetricOperator",
    "align_modes",
    "atoms_read",
    "bridge_scores",
    "bridges",
    "centrality",
    "communities",
    "components",
    "conjugate_gradient",
    "decompose",
    "effective_resistance",
    "fiedler",
    "find_modes",
    "frontiers",
    "frustration",
    "gram_svd",
    "lanczos",
    "laplacian",
    "linear_autoencoder",
    "mode_weights",
    "modes_of",
    "modularity",
    "predict_links",
    "principal_angles",
    "randomized_svd",
    "reconstruction_error",
    "resistance_embedding",
    "search_modes",
    "select_modes",
    "suggest_links",
]
