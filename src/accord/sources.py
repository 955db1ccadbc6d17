"""The papers that the methods come from, and their BibTeX entries."""

import unicodedata
from typing import NamedTuple

from accord.core.checks import closest


class Source(NamedTuple):
    """A paper or book.

    ``venue`` is the journal, the conference or the publisher. Braces hold a family name together.
    """

    key: str
    kind: str
    authors: tuple[str, ...]
    title: str
    venue: str
    year: int
    volume: str = ""
    number: str = ""
    pages: str = ""
    doi: str = ""
    arxiv: str = ""

    def reference(self) -> str:
        """The source as a line of text."""
        place = self.venue
        if self.volume:
            place += f" {self.volume}" + (f"({self.number})" if self.number else "")
        if self.pages:
            place += f", pp. {self.pages}"
        links = f", doi:{self.doi}" * bool(self.doi) + f", arXiv:{self.arxiv}" * bool(self.arxiv)
        authors = ", ".join(self.authors).translate({ord("{"): None, ord("}"): None})
        return f'{authors}, "{self.title}", {place}, {self.year}{links}.'

    def bibtex(self) -> str:
        """The source as a BibTeX entry."""
        holder = {"article": "journal", "inproceedings": "booktitle", "book": "publisher"}
        fields = {
            "author": " and ".join(self.authors),
            "title": f"{{{self.title}}}",
            holder[self.kind]: self.venue,
            "year": str(self.year),
            "volume": self.volume,
            "number": self.number,
            "pages": self.pages.replace("-", "--"),
            "doi": self.doi,
            "eprint": self.arxiv,
            "archiveprefix": "arXiv" if self.arxiv else "",
        }
        lines = [f"  {name} = {{{_latex(text)}}}," for name, text in fields.items() if text]
        return "\n".join([f"@{self.kind}{{{self.key},", *lines, "}"])


_ACCENTS = {"\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0308": '"'}


def _latex(text: str) -> str:
    """Accented letters in LaTeX's own spelling."""
    out = []
    for letter in text:
        plain, *marks = tuple(unicodedata.normalize("NFD", letter))
        for mark in marks:
            plain = f"{{\\{_ACCENTS[mark]}{plain}}}"
        out.append(plain)
    return "".join(out)


_TSIPN = "IEEE Transactions on Signal and Information Processing over Networks"
_NEURIPS = "Advances in Neural Information Processing Systems"
_ICML = "International Conference on Machine Learning (PMLR)"

SOURCES = {
    source.key: source
    for source in (
        Source(
            "acar2021feddyn",
            "inproceedings",
            (
                "Durmus Alp Emre Acar",
                "Yue Zhao",
                "Ramon Matas Navarro",
                "Matthew Mattina",
                "Paul N. Whatmough",
                "Venkatesh Saligrama",
            ),
            "Federated Learning Based on Dynamic Regularization",
            "International Conference on Learning Representations",
            2021,
            arxiv="2111.04263",
        ),
        Source(
            "boyd2011admm",
            "article",
            ("Stephen Boyd", "Neal Parikh", "Eric Chu", "Borja Peleato", "Jonathan Eckstein"),
            "Distributed Optimization and Statistical Learning via the Alternating Direction "
            "Method of Multipliers",
            "Foundations and Trends in Machine Learning",
            2011,
            "3",
            "1",
            "1-122",
            doi="10.1561/2200000016",
        ),
        Source(
            "green1984iteratively",
            "article",
            ("Peter J. Green",),
            "Iteratively Reweighted Least Squares for Maximum Likelihood Estimation, and some "
            "Robust and Resistant Alternatives",
            "Journal of the Royal Statistical Society. Series B",
            1984,
            "46",
            "2",
            "149-192",
        ),
        Source(
            "karimireddy2020scaffold",
            "inproceedings",
            (
                "Sai Praneeth Karimireddy",
                "Satyen Kale",
                "Mehryar Mohri",
                "Sashank J. Reddi",
                "Sebastian U. Stich",
                "Ananda Theertha Suresh",
            ),
            "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning",
            _ICML,
            2020,
            "119",
            pages="5132-5143",
            arxiv="1910.06378",
        ),
        Source(
            "li2020fedprox",
            "inproceedings",
            (
                "Tian Li",
                "Anit Kumar Sahu",
                "Manzil Zaheer",
                "Maziar Sanjabi",
                "Ameet Talwalkar",
                "Virginia Smith",
            ),
            "Federated Optimization in Heterogeneous Networks",
            "Proceedings of Machine Learning and Systems",
            2020,
            "2",
            pages="429-450",
            arxiv="1812.06127",
        ),
        Source(
            "mcmahan2017communication",
            "inproceedings",
            (
                "Brendan McMahan",
                "Eider Moore",
                "Daniel Ramage",
                "Seth Hampson",
                "Blaise {Agüera y Arcas}",
            ),
            "Communication-Efficient Learning of Deep Networks from Decentralized Data",
            "International Conference on Artificial Intelligence and Statistics (PMLR)",
            2017,
            "54",
            pages="1273-1282",
            arxiv="1602.05629",
        ),
        Source(
            "mishchenko2022proxskip",
            "inproceedings",
            (
                "Konstantin Mishchenko",
                "Grigory Malinovsky",
                "Sebastian Stich",
                "Peter Richtárik",
            ),
            "ProxSkip: Yes! Local Gradient Steps Provably Lead to Communication Acceleration! "
            "Finally!",
            _ICML,
            2022,
            "162",
            pages="15750-15769",
            arxiv="2202.09357",
        ),
        Source(
            "nedic2009distributed",
            "article",
            ("Angelia Nedić", "Asuman Ozdaglar"),
            "Distributed Subgradient Methods for Multi-Agent Optimization",
            "IEEE Transactions on Automatic Control",
            2009,
            "54",
            "1",
            "48-61",
        ),
        Source(
            "nedic2017achieving",
            "article",
            ("Angelia Nedić", "Alex Olshevsky", "Wei Shi"),
            "Achieving Geometric Convergence for Distributed Optimization over Time-Varying Graphs",
            "SIAM Journal on Optimization",
            2017,
            "27",
            "4",
            "2597-2633",
            arxiv="1607.03218",
        ),
        Source(
            "nesterov2018lectures",
            "book",
            ("Yurii Nesterov",),
            "Lectures on Convex Optimization",
            "Springer",
            2018,
            doi="10.1007/978-3-319-91578-4",
        ),
        Source(
            "pathak2020fedsplit",
            "inproceedings",
            ("Reese Pathak", "Martin J. Wainwright"),
            "FedSplit: An Algorithmic Framework for Fast Federated Optimization",
            _NEURIPS,
            2020,
            "33",
            pages="7057-7066",
            arxiv="2005.05238",
        ),
        Source(
            "sherson2019derivation",
            "article",
            ("Thomas W. Sherson", "Richard Heusdens", "W. Bastiaan Kleijn"),
            "Derivation and Analysis of the Primal-Dual Method of Multipliers Based on Monotone "
            "Operator Theory",
            _TSIPN,
            2019,
            "5",
            "2",
            "334-347",
        ),
        Source(
            "shi2015extra",
            "article",
            ("Wei Shi", "Qing Ling", "Gang Wu", "Wotao Yin"),
            "EXTRA: An Exact First-Order Algorithm for Decentralized Consensus Optimization",
            "SIAM Journal on Optimization",
            2015,
            "25",
            "2",
            "944-966",
            arxiv="1404.6264",
        ),
        Source(
            "xiao2004fast",
            "article",
            ("Lin Xiao", "Stephen Boyd"),
            "Fast Linear Iterations for Distributed Averaging",
            "Systems & Control Letters",
            2004,
            "53",
            "1",
            "65-78",
        ),
        Source(
            "zhang2018distributed",
            "article",
            ("Guoqiang Zhang", "Richard Heusdens"),
            "Distributed Optimization Using the Primal-Dual Method of Multipliers",
            _TSIPN,
            2018,
            "4",
            "1",
            "173-187",
            arxiv="1702.00841",
        ),
        Source(
            "zhang2021fedpd",
            "article",
            ("Xinwei Zhang", "Mingyi Hong", "Sairaj Dhople", "Wotao Yin", "Yang Liu"),
            "FedPD: A Federated Learning Framework with Adaptivity to Non-IID Data",
            "IEEE Transactions on Signal Processing",
            2021,
            "69",
            pages="6055-6070",
            doi="10.1109/TSP.2021.3115952",
            arxiv="2005.11418",
        ),
        Source(
            "zhang2022revisiting",
            "article",
            ("Guoqiang Zhang", "Kenta Niwa", "W. Bastiaan Kleijn"),
            "Revisiting the Primal-Dual Method of Multipliers for Optimisation over Centralised "
            "Networks",
            _TSIPN,
            2022,
            "8",
            pages="228-243",
            arxiv="2107.08809",
        ),
    )
}
"""Every source by the key that an algorithm's ``source`` names."""


def bibtex(key: str) -> str:
    """The BibTeX entry of a source; ``ValueError`` with the closest key where it is unknown."""
    if key not in SOURCES:
        raise ValueError(closest(key, SOURCES, "source"))
    return SOURCES[key].bibtex()
