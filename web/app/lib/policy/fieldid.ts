/** The element to go to for a fault's place in the form. */
export function fieldId(where: string): string {
  // The list as a whole has no field of its own.
  return where === 'limits' ? 'field-add' : `field-${where.replace(/[/.]/g, '-')}`;
}
