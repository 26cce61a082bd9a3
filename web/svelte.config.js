/** Runes everywhere, and class names that do not change from build to build of the same sources. */
export default {
  compilerOptions: { runes: true },
};
