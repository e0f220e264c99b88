// Formulas are set by MathJax, also after navigation inside the site.
window.MathJax = {
  tex: {
    inlineMath: [["\\(", "\\)"]],
    displayMath: [["\\[", "\\]"]],
  },
  options: { ignoreHtmlClass: ".*|", processHtmlClass: "arithmatex" },
};
